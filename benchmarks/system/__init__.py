"""How much sooner is a trial done that uses its machine well, and what does it cost to find out how?"""
