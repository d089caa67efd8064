"""Arrays of other libraries and devices: exports, imports, DLPack, copies between devices."""
