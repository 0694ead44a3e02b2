"""An admin site of the tests' own, as samples in the documents register the models of other apps in the usual one."""

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.urls import path

from djqueue.admin import DashboardAdmin
from djqueue.models import Dashboard

site = admin.AdminSite()
site.register(Group, GroupAdmin)
site.register(User, UserAdmin)
site.register(Dashboard, DashboardAdmin)
urlpatterns = [path("admin/", site.urls)]
