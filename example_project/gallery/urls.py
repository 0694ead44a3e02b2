from django.urls import path

from gallery import views

urlpatterns = [
    path("", views.gallery, name="gallery"),
    path("state/", views.gallery_state, name="gallery-state"),
    path("upload/", views.upload, name="upload"),
    path("photos/<int:pk>/", views.photo, name="photo"),
    path("photos/<int:pk>/state/", views.photo_state, name="photo-state"),
    path("queues/", views.queue_page, name="queues"),
    path("queues/state/", views.queue_state, name="queues-state"),
    path("queues/failed/", views.failed_page, name="failed"),
    path("queues/failed/<str:alias>/<str:message>/retry/", views.retry, name="retry"),
    path("health/", views.health, name="health"),
]
