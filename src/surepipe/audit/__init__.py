"""What traces prove: their rows, the properties that are judged, and audits of any size."""
