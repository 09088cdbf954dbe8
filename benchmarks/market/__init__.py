"""How accurate are the models of prices and lifetimes?"""
