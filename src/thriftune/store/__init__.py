"""Where is the log of each study stored?"""
