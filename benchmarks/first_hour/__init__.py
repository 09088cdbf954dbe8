"""How much code does a first study need, compared with Optuna, and how soon is a bug shown?"""
