"""Other people's weights in and out: strict two-way tables of names, a file for each family."""

from regard.interop.folder import export_folder, import_folder, refuse_to_replace
from regard.interop.llama2c import import_llama2c

__all__ = ["export_folder", "import_folder", "import_llama2c", "refuse_to_replace"]
