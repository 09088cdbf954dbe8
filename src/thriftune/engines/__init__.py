"""Where do trials run?"""
