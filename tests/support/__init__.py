"""What tests of several packages use: made-up studies, rented machines, Ray clusters."""
