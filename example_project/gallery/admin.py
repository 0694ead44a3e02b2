from django.contrib import admin

from gallery.models import Comment, Photo


@admin.register(Photo)
class PhotoAdmin(admin.ModelAdmin):
    list_display = ["title", "owner", "uploaded", "problem"]


@admin.register(Comment)
class CommentAdmin(admin.ModelAdmin):
    list_display = ["author", "photo", "posted", "state"]
    list_filter = ["state"]
