"""How well does the market's room know what machines cost and how long they live?"""
