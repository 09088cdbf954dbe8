import optuna
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

x_train, x_valid, y_train, y_valid = train_test_split(*load_digits(return_X_y=True), random_state=0)


def objective(trial):
    alpha = trial.suggest_float("alpha", 1e-6, 1e-1, log=True)
    penalty = trial.suggest_categorical("penalty", ["l1", "l2", "elasticnet"])
    model = SGDClassifier(alpha=alpha, penalty=penalty, random_state=0)
    for step in range(20):
        model.partial_fit(x_train, y_train, classes=range(10))
        accuracy = model.score(x_valid, y_valid)
        trial.report(accuracy, step)
        if trial.should_prune():
            raise optuna.TrialPruned()
    return accuracy


study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner())
study.optimize(objective, n_trials=20)
print(study.best_params, study.best_value)
print(study.trials_dataframe())
print(optuna.importance.get_param_importances(study))
