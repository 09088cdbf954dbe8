"""Does the planner find the best plan, how fast, and does what it predicts come true?"""
