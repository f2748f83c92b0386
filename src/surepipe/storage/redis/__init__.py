"""A store on a Redis server."""
