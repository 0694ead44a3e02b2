from django.urls import path

from trouble import views

urlpatterns = [
    path("make/", views.make, name="make-trouble"),
    path("end/", views.end, name="end-trouble"),
]
