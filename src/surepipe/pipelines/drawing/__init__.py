"""A plan as a picture: what is in it (``diagram``), where it stands (``layout``), and as SVG, DOT or Mermaid."""
