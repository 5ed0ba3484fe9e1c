"""Records of sessions that outlive the machine."""
