"""The smallest project with the command `nightly`."""

import sys

from django.conf import settings
from django.core.management import execute_from_command_line

settings.configure(INSTALLED_APPS=["nightly"], USE_TZ=True)
execute_from_command_line(sys.argv)
