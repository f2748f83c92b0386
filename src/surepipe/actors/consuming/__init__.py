"""Where messages reach the application: handlers, coroutines, transactions and lanes."""
