"""The admin of Wagtail."""

from django.urls import include, path
from wagtail.admin import urls

urlpatterns = [path("admin/", include(urls))]
