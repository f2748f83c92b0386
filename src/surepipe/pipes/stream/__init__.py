"""The two halves of the stream pipe; ``pipes/kinds/stream.py`` says what it is."""
