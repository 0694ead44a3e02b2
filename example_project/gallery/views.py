"""The pages, and the same as JSON for the script that keeps them up to date."""

from django.contrib.admin.views.decorators import staff_member_required
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from activity import reports as activity
from djqueue import queues
from gallery import albums, reports
from gallery.forms import CommentForm, PhotoForm
from gallery.models import Photo


@require_GET
def gallery(request: HttpRequest) -> HttpResponse:
    return render(request, "gallery/gallery.html", reports.gallery())


@require_GET
@never_cache
def gallery_state(request: HttpRequest) -> JsonResponse:
    return JsonResponse(reports.gallery())


@login_required
@require_http_methods(["GET", "POST"])
def upload(request: HttpRequest) -> HttpResponse:
    form = PhotoForm(request.POST or None, request.FILES or None)
    if form.is_valid():
        for title, file in form.pictures():
            albums.add_photo(request.user, title, file)
        return redirect("gallery")
    return render(request, "gallery/upload.html", {"form": form})


@require_http_methods(["GET", "POST"])
def photo(request: HttpRequest, pk: int) -> HttpResponse:
    shown = get_object_or_404(Photo, pk=pk)
    form = CommentForm(request.POST or None)
    if form.is_valid():
        comment = albums.add_comment(shown, **form.cleaned_data)
        _remember(request, comment.pk)
        return redirect(shown)
    return render(request, "gallery/photo.html", {"form": form, "photo": shown, **_photo_report(request, shown)})


@require_GET
@never_cache
def photo_state(request: HttpRequest, pk: int) -> JsonResponse:
    return JsonResponse(_photo_report(request, get_object_or_404(Photo, pk=pk)))


@require_GET
def queue_page(request: HttpRequest) -> HttpResponse:
    return render(request, "gallery/queues.html", reports.queues())


@require_GET
@never_cache
def queue_state(request: HttpRequest) -> JsonResponse:
    return JsonResponse(reports.queues())


@require_GET
def failed_page(request: HttpRequest) -> HttpResponse:
    """The failed messages. Only the staff sees arguments and tracebacks."""
    rows = activity.failed(for_staff=request.user.is_staff)
    return render(request, "gallery/failed.html", {"messages_failed": rows})


@staff_member_required(login_url="login")
@require_POST
def retry(request: HttpRequest, alias: str, message: str) -> HttpResponse:
    """Put a failed message back, as ``queue_errors retry`` does."""
    if alias not in queues or not queues[alias].requeue([message]):
        raise Http404("There is no such failed message.")
    return redirect("failed")


@require_GET
@never_cache
def health(request: HttpRequest) -> HttpResponse:
    """For monitoring: the site answers, and so does its database."""
    Photo.objects.exists()
    return HttpResponse("ok\n", content_type="text/plain")


def _photo_report(request: HttpRequest, shown: Photo) -> dict:
    return reports.photo(shown, mine=request.session.get("comments", []))


def _remember(request: HttpRequest, comment_id: int) -> None:
    """Visitors see what became of their own comments; so the session knows which those are."""
    request.session["comments"] = [*request.session.get("comments", []), comment_id][-100:]
