from django.urls import path

from tryit import views

urlpatterns = [
    path("", views.page, name="try"),
    path("state/", views.state, name="try-state"),
    path("<slug:name>/<slug:action>/", views.press, name="try-press"),
]
