"""Which machine for each trial, now?"""
