"""The addresses of the site."""

from django.conf import settings
from django.contrib import admin
from django.contrib.auth import views as auth
from django.contrib.staticfiles.views import serve as serve_static
from django.urls import include, path
from django.views.static import serve

urlpatterns = [
    path("", include("gallery.urls")),
    path("try/", include("tryit.urls")),
    path("trouble/", include("trouble.urls")),
    path("login/", auth.LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("logout/", auth.LogoutView.as_view(), name="logout"),
    path("admin/", admin.site.urls),
    # A web server in front of Django would do these two. Of the media only what Pillow has written is shown.
    path("thumbs/<path:path>", serve, {"document_root": settings.MEDIA_ROOT / "thumbs"}, name="thumbnail"),
    path("static/<path:path>", serve_static, {"insecure": True}),
]
