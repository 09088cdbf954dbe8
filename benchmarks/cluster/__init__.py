"""On a cluster: what is lost when its machines are?"""
