"""How does a study start, resume, stop and end?"""
