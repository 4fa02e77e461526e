"""Pages and notebook fragments in HTML that load nothing from elsewhere."""
