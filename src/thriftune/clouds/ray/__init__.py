"""Who rents us the nodes of a Ray cluster?"""
