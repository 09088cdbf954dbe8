"""From where does a study get its machines?"""
