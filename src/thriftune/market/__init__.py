"""What does a machine cost, and how long will it live?"""
