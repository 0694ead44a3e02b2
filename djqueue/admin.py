"""The dashboard in Django's admin, which finds this module by itself. Nothing else of the package imports the admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import URLPattern

from djqueue.models import Dashboard


@admin.register(Dashboard)
class DashboardAdmin(admin.ModelAdmin):
    """Serves the pages in the place of the usual ones, as there is no table to list."""

    def get_urls(self) -> list[URLPattern]:
        from djqueue.dashboard.site import Site  # loaded where addresses are: a consumer serves no pages
        from djqueue.dashboard.urls import patterns

        return patterns(Site(self))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
