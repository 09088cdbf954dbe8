"""What does a user hold? tune(), the ask-and-tell Study, load(), and the Result."""
