from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

import thriftune as tt

x_train, x_valid, y_train, y_valid = train_test_split(*load_digits(return_X_y=True), random_state=0)
space = {"alpha": tt.Float(1e-6, 1e-1, log=True), "penalty": tt.Choice(["l1", "l2", "elasticnet"])}


def train(trial):
    model = SGDClassifier(**trial, random_state=0)
    for _ in trial.steps():
        model.partial_fit(x_train, y_train, classes=range(10))
        trial.report(accuracy=model.score(x_valid, y_valid))


result = tt.tune(train, space, maximize="accuracy", max_steps=20, trials=20)
print(result.best.config, result.best.value)
print(result.to_pandas())
print(result.importance())
