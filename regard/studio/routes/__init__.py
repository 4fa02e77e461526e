"""Routes: each reads a request, asks the service, and gives what it found in the form of its API."""
