"""The service: trained models over HTTP, for programs that exist and for the studio's page."""
