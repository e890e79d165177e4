"""What one layer computes and sends, as operations and transfers without time."""
