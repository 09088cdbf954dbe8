import lightgbm as lgb
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import thriftune as tt

x_train, x_valid, y_train, y_valid = train_test_split(*load_breast_cancer(return_X_y=True), random_state=0)
space = {
    "objective": "binary",
    "metric": "auc",
    "verbosity": -1,
    "learning_rate": tt.Float(0.01, 0.3, log=True),
    "num_leaves": tt.Int(4, 64, log=True),
    "feature_fraction": tt.Float(0.4, 1.0),
}


def train(trial):
    def report(now):
        trial.report(auc=now.evaluation_result_list[0][2])

    train_set, valid_set = lgb.Dataset(x_train, y_train), lgb.Dataset(x_valid, y_valid)
    lgb.train(dict(trial), train_set, 50, valid_sets=[valid_set], callbacks=[report])


result = tt.tune(train, space, maximize="auc", max_steps=50, trials=20)
print(result.best.config, result.best.value)
print(result.to_pandas())
print(result.importance())
