"""Who rents machines to us?"""
