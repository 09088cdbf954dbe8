"""How do trials run on the nodes of a Ray cluster?"""
