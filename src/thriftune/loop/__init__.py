"""What happens next? The conductor decides; the driver brings it events and carries its decisions out."""
