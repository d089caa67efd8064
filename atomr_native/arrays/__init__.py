"""Array handles and layouts, and the checks that operations make of their operands; no device is needed."""
