"""Other people's weights in and out: strict two-way tables of names, a file for each family."""

from regard.interop.archive import import_archive
from regard.interop.folder import export_folder, import_folder, refuse_to_replace
from regard.interop.llama2c import import_llama2c
from regard.interop.to_ctranslate2 import export_ctranslate2
from regard.interop.to_onnx import export_onnx

__all__ = [
    "export_ctranslate2",
    "export_folder",
    "export_onnx",
    "import_archive",
    "import_folder",
    "import_llama2c",
    "refuse_to_replace",
]
