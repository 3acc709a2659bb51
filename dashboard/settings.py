"""Django's settings, read from the environment once. `dashboard.checks` reports what cannot be read, all at once."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from dashboard import database_url, logging_config, secret_key
from dashboard.env import Environment

BASE_DIR = Path(__file__).resolve().parent.parent
ENV = Environment(os.environ)

# -- what can be set: docs/configuration.md lists it

DATA_DIR = Path(ENV.text("UNSTALL_DATA_DIR", str(BASE_DIR / ".unstall"))).expanduser().absolute()
DEBUG = ENV.flag("UNSTALL_DEBUG", default=False)
BIND = ENV.text("UNSTALL_BIND", "127.0.0.1:8000")
TRUSTED_ORIGINS = ENV.origins("UNSTALL_TRUSTED_ORIGINS")
TRUSTED_PROXIES = ENV.proxies("UNSTALL_TRUSTED_PROXIES")  # addresses or networks whose X-Forwarded-… we believe
SESSION_DAYS = ENV.number("UNSTALL_SESSION_DAYS", 7, least=1, most=90)
SESSION_IDLE_HOURS = ENV.number("UNSTALL_SESSION_IDLE_HOURS", 8, least=0, most=2160)  # 0: only the days count
LOG_LEVEL = ENV.choice("UNSTALL_LOG_LEVEL", "info", logging_config.LEVELS)
SECRET_KEY = secret_key.key(ENV, DATA_DIR)
SECRET_KEY_FALLBACKS = secret_key.fallbacks(ENV)

# -- access

_BIND_HOST = BIND.rpartition(":")[0].strip("[]")
_EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - compared, not bound
_LOCAL = ("localhost", "127.0.0.1", "::1", "unix")
LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
ALLOWED_HOSTS = [
    *LOCAL_HOSTS,
    *ENV.hosts("UNSTALL_ALLOWED_HOSTS"),
    *(urlsplit(origin).hostname or "" for origin in TRUSTED_ORIGINS),
    *(() if _BIND_HOST in (*_EVERYWHERE, *_LOCAL) else (_BIND_HOST,)),
]
BIND_IS_OPEN = _BIND_HOST not in _LOCAL
CSRF_TRUSTED_ORIGINS = list(TRUSTED_ORIGINS)
IS_HTTPS = bool(TRUSTED_ORIGINS) and all(origin.startswith("https://") for origin in TRUSTED_ORIGINS)

AUTH_USER_MODEL = "dashboard.User"
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "overview"
LOGOUT_REDIRECT_URL = "login"

# Sessions stay in the database: kept in a process's memory, a logout here would not be one in the process next door.
SESSION_ENGINE = "dashboard.accounts.sessions"
SESSION_IDLE = timedelta(hours=SESSION_IDLE_HOURS) if SESSION_IDLE_HOURS else None
SESSION_COOKIE_AGE = int(timedelta(days=SESSION_DAYS).total_seconds())
SESSION_COOKIE_NAME = "unstall-session"
SESSION_COOKIE_SECURE = IS_HTTPS
SESSION_COOKIE_SAMESITE = "Lax"  # a link in an alert must find you logged in
CSRF_COOKIE_NAME = "unstall-csrf"
CSRF_COOKIE_SECURE = IS_HTTPS
CSRF_COOKIE_HTTPONLY = True  # htmx gets the token from the page
CSRF_FAILURE_VIEW = "dashboard.base.error_pages.csrf_failure"

# -- headers

# The other headers: dashboard/server/security_headers.py adds them to every answer, also without Django.
STRICT_TRANSPORT_SECONDS = int(timedelta(days=30).total_seconds()) if IS_HTTPS else 0
# plotly makes one empty <style>, and one for its maps as it loads; a change fails tests/unit/servers/test_charts.py.
_PLOTLY_STYLES = (
    "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='",
    "'sha256-ji27qzEtxXZW+7dun6UwjHXJ18e6WAin1VvNtkzIE/o='",
)
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'", *_PLOTLY_STYLES],
        "img-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
        "base-uri": ["'none'"],
    }
}

# -- Django

INSTALLED_APPS = [
    "dashboard",
    "recovery",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_htmx",
    "csp",
]
MIDDLEWARE = [
    "dashboard.base.static_files.StaticFilesMiddleware",
    "dashboard.middleware.headers",
    "csp.middleware.CSPMiddleware",
    "django.middleware.gzip.GZipMiddleware",
    "dashboard.middleware.mentions",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "dashboard.middleware.session_use",
    "django.contrib.messages.middleware.MessageMiddleware",
    "dashboard.middleware.LoginRequired",
    "dashboard.middleware.ErrorPagesMiddleware",
]
ROOT_URLCONF = "dashboard.urls"
ASGI_APPLICATION = "dashboard.asgi.application"
_SQLITE = f"sqlite:///{DATA_DIR / 'unstall.sqlite3'}"
# Not kept as a setting of its own: error pages of UNSTALL_DEBUG show settings, and hide the password in this one.
DATABASES = {"default": database_url.database_settings(ENV.url("DATABASE_URL", _SQLITE, schemes=database_url.SCHEMES))}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.messages.context_processors.messages",
                "dashboard.base.context_processors.frame",
            ],
            "builtins": ["django.templatetags.static", "dashboard.templatetags.show"],
            "loaders": [("django.template.loaders.cached.Loader", ["django.template.loaders.filesystem.Loader"])],
        },
    }
]
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False
LANGUAGE_CODE = "en"
LOGGING = logging_config.configuration(level="DEBUG" if DEBUG else LOG_LEVEL.upper())
LOGGING_CONFIG = "logging.config.dictConfig"

# -- static files

STATIC_URL = "/static/"
STATIC_ROOT = Path(ENV.text("UNSTALL_STATIC_DIR", str(BASE_DIR / ".static")))
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "dashboard.base.static_files.PlotlyFinder",
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "dashboard.base.static_files.HashedStaticFilesStorage"},
}
WHITENOISE_USE_FINDERS = True
WHITENOISE_KEEP_ONLY_HASHED_FILES = True
WHITENOISE_AUTOREFRESH = DEBUG
WHITENOISE_ALLOW_ALL_ORIGINS = False
