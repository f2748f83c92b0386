"""Pages and pictures in one look: colours, SVG, boxes and arrows, HTML."""
