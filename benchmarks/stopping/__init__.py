"""How much do rules save that give up on trials early, and what do they miss by it?"""
