"""What the settings name for Wagtail's tasks by dotted paths."""


def of_object(app_label, model_name, pk):
    """The object that a task of Wagtail puts into its search index: one shard for each."""
    return f"{app_label}.{model_name}.{pk}"
