"""Files of other labelling tools.

Read first: any of them: one file each.
Must not know: streams and services.
"""

from taps.adapters.labels import (
    label_config,
    read_csv,
    read_fiftyone,
    read_label_studio,
    read_run,
    with_labels,
    write_csv,
    write_fiftyone,
    write_label_studio,
)

__all__ = [
    "label_config",
    "read_csv",
    "read_fiftyone",
    "read_label_studio",
    "read_run",
    "with_labels",
    "write_csv",
    "write_fiftyone",
    "write_label_studio",
]
