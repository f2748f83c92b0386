"""Small deliberate errors in machines, stores and hosts: the judge must notice each of them. Never shipped."""
