import lightgbm as lgb
import optuna
from optuna.integration import LightGBMPruningCallback
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

x_train, x_valid, y_train, y_valid = train_test_split(*load_breast_cancer(return_X_y=True), random_state=0)


def objective(trial):
    params = {
        "objective": "binary",
        "metric": "auc",
        "verbosity": -1,
        "learning_rate": trial.suggest_float("learning_rate", 0.01, 0.3, log=True),
        "num_leaves": trial.suggest_int("num_leaves", 4, 64, log=True),
        "feature_fraction": trial.suggest_float("feature_fraction", 0.4, 1.0),
    }
    train_set, valid_set = lgb.Dataset(x_train, y_train), lgb.Dataset(x_valid, y_valid)
    pruning = LightGBMPruningCallback(trial, "auc")
    model = lgb.train(params, train_set, 50, valid_sets=[valid_set], callbacks=[pruning])
    return model.best_score["valid_0"]["auc"]


study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner())
study.optimize(objective, n_trials=20)
print(study.best_params, study.best_value)
print(study.trials_dataframe())
print(optuna.importance.get_param_importances(study))
