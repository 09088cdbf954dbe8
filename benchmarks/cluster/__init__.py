"""How fast and how reliable are trials on Ray clusters?"""
