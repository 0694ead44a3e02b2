"""What every answer of the site carries."""


def only_our_own(get_response):
    """Have browsers refuse scripts, styles and pictures from anywhere else, and any inside a page."""

    def respond(request):
        response = get_response(request)
        response.headers.setdefault("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'")
        return response

    return respond
