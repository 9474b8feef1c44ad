"""What single execution providers need."""
